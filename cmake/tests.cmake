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

# A driver, a cuBLAS and a cuDNN for machines without a GPU, under the names of the real ones.
set(fake_names cuda cublas cudnn)
set(fake_suffixes .so.1 .so.13 .so.9)
foreach(name suffix IN ZIP_LISTS fake_names fake_suffixes)
  add_library(fake-${name} SHARED tests/support/fake_${name}.c)
  target_compile_options(fake-${name} PRIVATE ${MOEC_WARNINGS})
  target_link_options(fake-${name} PRIVATE -Wl,-soname,lib${name}${suffix})
  set_target_properties(fake-${name} PROPERTIES OUTPUT_NAME ${name} SUFFIX ${suffix} NO_SONAME TRUE
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fake)
endforeach()
target_link_libraries(fake-cublas PRIVATE fake-cuda)
target_link_libraries(fake-cudnn PRIVATE fake-cuda m)

file(GLOB programs CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/*/*_test.c)
foreach(file IN LISTS programs)
  cmake_path(GET file STEM name)
  cmake_path(GET file PARENT_PATH folder)
  cmake_path(GET folder FILENAME label)
  moec_test_program(${name} ${file})
  target_link_libraries(${name} PRIVATE PkgConfig::CHECK)
  if(name MATCHES "^runtime_cuda_" OR name STREQUAL runtime_attention_test)
    add_dependencies(${name} fake-cuda fake-cublas fake-cudnn)
  endif()
  add_test(NAME ${label}/${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${label}/${name} PROPERTIES LABELS ${label} TIMEOUT 600
                       SKIP_RETURN_CODE 77 ENVIRONMENT "${environment}")
endforeach()

# What a GPU computed against golden files; tests/gpu/*_test.sh run on a machine that has one.
add_executable(moec-compare tests/gpu/compare.c)
target_compile_options(moec-compare PRIVATE ${MOEC_WARNINGS})
target_link_libraries(moec-compare PRIVATE moec_base)
add_executable(moec-step tests/gpu/step.c)
target_compile_options(moec-step PRIVATE ${MOEC_WARNINGS})
target_link_libraries(moec-step PRIVATE moec_runtime moec_base)

file(GLOB scripts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/*_test.sh
                                    ${CMAKE_SOURCE_DIR}/tests/*/*_test.sh)
foreach(file IN LISTS scripts)
  file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR}/tests ${file})
  string(REGEX REPLACE "[.]sh$" "" name ${name})
  set(label script)
  if(name MATCHES "^gpu/")
    set(label gpu)
  endif()
  add_test(NAME ${name} COMMAND bash ${file} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT 600 SKIP_RETURN_CODE 77
                       ENVIRONMENT "${environment}")
endforeach()

# These take minutes: first, so that no processor waits for them at the end.
set_tests_properties(e2e/cuda_compile_test unit/emit_cuda_test unit/emit_cuda_attention_grad_test
                     unit/emit_cuda_halves_test unit/runtime_gemm_test e2e/planned_test PROPERTIES COST 100)
