// Command book makes a static site of the documents of this repository: one page for each, with a list of all in the order of
// docs/README.md and a search. The site needs no network and no server. It is a module of its own, since nothing else needs a
// parser of Markdown.
//
//	book ROOT OUT        reads the documents below ROOT, and writes the site to OUT
//	book page ROOT FILE  compiles the page of docs/page.md, and writes it to FILE
//
// A link that leads nowhere, to a page or within one, is an error.
package main
