# Tests: tests/*/*_test.c are Check programs, tests/*_test.sh and tests/*/*_test.sh scripts;
# tests/fuzz/*.c are libFuzzer programs. Exit status 77 means "cannot run here": skipped.
enable_testing()
set(MOEC_LAYERS base ir frontend models passes codegen runtime)

# moec_test_program(TARGET FILE): links the layers whose headers FILE includes, so that a test
# of base needs nothing else to build; all of them for a user of tests/support.
function(moec_test_program target file)
  file(STRINGS ${file} includes REGEX "^#include \"")
  set(libraries moec_base)
  foreach(layer IN LISTS MOEC_LAYERS)
    if(includes MATCHES "\"(${layer}|tests/support)/")
      list(PREPEND libraries moec_${layer})
    endif()
  endforeach()
  if(includes MATCHES "\"include/")
    list(APPEND libraries moec_runtime)
  endif()
  set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  add_executable(${target} ${file})
  target_compile_options(${target} PRIVATE ${MOEC_WARNINGS})
  target_link_libraries(${target} PRIVATE ${libraries})
endfunction()

if(MOEC_FUZZ)
  add_custom_target(fuzzers)
  file(GLOB fuzzers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/*.c)
  foreach(file IN LISTS fuzzers)
    cmake_path(GET file STEM name)
    moec_test_program(${name} ${file})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzzers ${name})
  endforeach()
  return()
endif()

pkg_check_modules(CHECK REQUIRED IMPORTED_TARGET check)
set(environment CK_FORK=no MOEC_BUILD=${CMAKE_BINARY_DIR} MOEC=${CMAKE_BINARY_DIR}/moec
                MOEC_SOURCE=${CMAKE_SOURCE_DIR})
if(MOEC_SANITIZE)
  list(APPEND environment ASAN_OPTIONS=strict_string_checks=1:detect_stack_use_after_return=1
                          UBSAN_OPTIONS=print_stacktrace=1)
endif()

file(GLOB programs CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/*/*_test.c)
foreach(file IN LISTS programs)
  cmake_path(GET file STEM name)
  cmake_path(GET file PARENT_PATH folder)
  cmake_path(GET folder FILENAME label)
  moec_test_program(${name} ${file})
  target_link_libraries(${name} PRIVATE PkgConfig::CHECK)
  add_test(NAME ${label}/${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${label}/${name} PROPERTIES LABELS ${label} TIMEOUT 600
                       SKIP_RETURN_CODE 77 ENVIRONMENT "${environment}")
endforeach()

file(GLOB scripts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/*_test.sh
                                    ${CMAKE_SOURCE_DIR}/tests/*/*_test.sh)
foreach(file IN LISTS scripts)
  file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR}/tests ${file})
  string(REGEX REPLACE "[.]sh$" "" name ${name})
  add_test(NAME ${name} COMMAND bash ${file} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS script TIMEOUT 600 SKIP_RETURN_CODE 77
                       ENVIRONMENT "${environment}")
endforeach()
