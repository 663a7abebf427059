# Bytes of files as read-only data of a program. Assembly rather than C arrays: .incbin takes
# megabytes in no time, and the bytes stay out of the debug information.

# moec_embed_files(LIBRARY FOLDER): the static library LIBRARY with the table of
# codegen/embedded.h over the files of FOLDER and the parts of web pages beside it, sorted by
# path, each followed by a NUL.
function(moec_embed_files library folder)
  file(GLOB files CONFIGURE_DEPENDS ${folder}/* ${folder}/../*.html ${folder}/../*.css
                                    ${folder}/../*.js)
  list(FILTER files EXCLUDE REGEX "/[.][^/]*$|~$")
  list(SORT files)
  set(count 0)
  set(data ".section .rodata\n")
  set(table ".section .data.rel.ro,\"aw\"\n.balign 8\n.globl moec_embedded_files\n")
  string(APPEND table ".hidden moec_embedded_files\nmoec_embedded_files:\n")
  foreach(file IN LISTS files)
    cmake_path(GET file FILENAME name)
    string(APPEND data ".Lname${count}: .asciz \"${name}\"\n.balign 16\n"
                       ".Lbegin${count}: .incbin \"${file}\"\n.Lend${count}: .byte 0\n")
    string(APPEND table ".quad .Lname${count}, .Lbegin${count}, .Lend${count} - .Lbegin${count}\n")
    math(EXPR count "${count} + 1")
  endforeach()
  string(APPEND table ".quad 0, 0, 0\n")
  set(source ${CMAKE_BINARY_DIR}/generated/${library}.S)
  file(CONFIGURE OUTPUT ${source} @ONLY
       CONTENT "${data}${table}.section .note.GNU-stack,\"\",%progbits\n")
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS "${files}")
  add_library(${library} STATIC ${source})
  set_target_properties(${library} PROPERTIES LINKER_LANGUAGE C)
endfunction()

# moec_embed_stub(PROGRAM STUB): the bytes of the executable target STUB in PROGRAM, between
# the symbols moec_stub_begin and moec_stub_end.
function(moec_embed_stub program stub)
  set(source ${CMAKE_BINARY_DIR}/generated/${stub}.S)
  set(binary ${CMAKE_BINARY_DIR}/${stub})
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT ".section .rodata
.balign 4096
.globl moec_stub_begin, moec_stub_end
.hidden moec_stub_begin, moec_stub_end
moec_stub_begin: .incbin \"${binary}\"
moec_stub_end: .byte 0
.section .note.GNU-stack,\"\",%progbits
")
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS ${binary})
  target_sources(${program} PRIVATE ${source})
  add_dependencies(${program} ${stub})
endfunction()
