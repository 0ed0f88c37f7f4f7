package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) == 4 && os.Args[1] == "page" {
		if err := buildPage(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(os.Args[3])
		return
	}
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: book [page] ROOT OUT")
		os.Exit(2)
	}
	n, err := build(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%d pages: %s/index.html\n", n, os.Args[2])
}
