// The `hello` guest in Go: greets, and ends with the exit code that its last argument names.
package main

import (
	"fmt"
	"os"
	"strconv"
)

func main() {
	fmt.Println("Hello from Go!", os.Getenv("GREETING"))
	if len(os.Args) < 2 {
		return
	}
	code, err := strconv.Atoi(os.Args[len(os.Args)-1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 2
	}
	os.Exit(code)
}
