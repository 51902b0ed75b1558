// A WASI preview 1 module that ends with the exit code it is told, for example to try restart
// policies: `args: ["3"]`.
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  int code = argc > 1 ? atoi(argv[argc - 1]) : 0;
  fprintf(stderr, "ending with code %d\n", code);
  return code;
}
