# Defines the installed tree, which can be moved to any place:
#   bin/lathe  lib/liblathe.so*  lib/lathe/plugins/<kind>/*.so  include/lathe/*.h
#   lib/cmake/lathe/  lib/pkgconfig/lathe.pc  share/lathe/plugin_template/  share/man/
#   share/bash-completion/  share/zsh/  share/fish/  share/doc/lathe/
# and the target lathe_product: the command, the library and the plugins, without tests.
include(CMakePackageConfigHelpers)

get_property(plugin_targets GLOBAL PROPERTY LATHE_PLUGINS)
add_custom_target(lathe_product DEPENDS lathe ${plugin_targets})
if(TARGET lathe_app)
  add_dependencies(lathe_product lathe_app)
  install(TARGETS lathe_app RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

add_library(lathe_headers INTERFACE)
target_include_directories(lathe_headers INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(lathe_headers PROPERTIES EXPORT_NAME headers)

install(TARGETS lathe lathe_headers EXPORT latheTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY core/include/lathe DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lathe)
install(EXPORT latheTargets NAMESPACE lathe:: DESTINATION ${package_dir})
configure_package_config_file(cmake/latheConfig.cmake.in ${CMAKE_BINARY_DIR}/latheConfig.cmake
  INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_BINDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/latheConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/latheConfig.cmake ${CMAKE_BINARY_DIR}/latheConfigVersion.cmake
  cmake/LathePlugin.cmake cmake/LatheCuda.cmake DESTINATION ${package_dir})
install(PROGRAMS cmake/nvcc_cached.sh DESTINATION ${package_dir})

configure_file(cmake/lathe.pc.in ${CMAKE_BINARY_DIR}/lathe.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/lathe.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(EXISTS ${CMAKE_SOURCE_DIR}/examples/plugin_template)
  install(DIRECTORY examples/plugin_template DESTINATION ${CMAKE_INSTALL_DATADIR}/lathe)
endif()

# The pages keep their places relative to each other, so that their links lead somewhere.
set(pages ${CMAKE_INSTALL_DATADIR}/doc/lathe)
install(FILES README.md CHANGELOG.md CONTRIBUTING.md LICENSE DESTINATION ${pages})
install(DIRECTORY docs DESTINATION ${pages} FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.png")
install(DIRECTORY plugins DESTINATION ${pages} FILES_MATCHING PATTERN "README.md")
install(DIRECTORY examples/embed DESTINATION ${pages}/examples)

# Manual pages and completion scripts come from the program: its tables of commands and the plugins' schemas.
if(TARGET lathe_app)
  set(manual ${CMAKE_BINARY_DIR}/manual)
  add_custom_command(OUTPUT ${manual}/man1/lathe.1
    COMMAND ${CMAKE_SOURCE_DIR}/cmake/make_manual.sh $<TARGET_FILE:lathe_app> ${manual}
    DEPENDS lathe_app ${plugin_targets} cmake/make_manual.sh COMMENT "Manual pages and completion scripts")
  add_custom_target(lathe_manual ALL DEPENDS ${manual}/man1/lathe.1)
  add_dependencies(lathe_product lathe_manual)
  install(DIRECTORY ${manual}/man1 ${manual}/man5 DESTINATION ${CMAKE_INSTALL_MANDIR})
  install(FILES ${manual}/completion/lathe DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${manual}/completion/_lathe DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${manual}/completion/lathe.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
