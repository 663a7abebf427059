/* main() of every compiled model: the executable opens itself. */
#include "runtime/cli.h"

int main(int argc, char **argv) { return moec_rt_cli_main(argc, argv); }
