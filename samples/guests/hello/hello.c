// A WASI preview 1 module: says what it was given and ends.
#include <stdio.h>

extern char **environ;

int main(int argc, char **argv) {
  printf("Hello from WebAssembly!\n");
  for (int i = 0; i < argc; i++) printf("arg %d: %s\n", i, argv[i]);
  for (char **e = environ; *e; e++) printf("env: %s\n", *e);
  return 0;
}
