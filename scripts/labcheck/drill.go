package main

import (
	"fmt"
	"os"
	"strings"
)

// A drill is one page of docs/lab.
type drill struct {
	file   string
	blocks []block
}

// A block is a few commands, and what they print.
type block struct {
	line     int    // of the first command
	script   string // ends with a newline
	needs    string // what not every lab has; empty for nothing
	want     []string
	wantLine int // of want[0]; where there is no want, of the end of the commands
}

func load(file string) (*drill, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	blocks, err := parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s:%w", file, err)
	}
	return &drill{file, blocks}, nil
}

// parse finds the blocks of a page. A fence that begins with ```sh holds commands; the ```text fence
// after it what they print, and without one they print nothing. This word may follow sh:
//
//	containers    only where the lab is made of containers
//
// Any other fence is an error, so that no command goes unchecked because of a typing mistake.
func parse(text string) ([]block, error) {
	var blocks []block
	fence, open := "", 0 // the kind of the fence we are in, and its line
	expectText := false  // the last fence held commands
	for i, line := range strings.Split(text, "\n") {
		n := i + 1
		rest, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && fence != "": // it ends here
			if rest != "" {
				return nil, fmt.Errorf("%d: a fence begins inside the one of line %d", n, open)
			}
			expectText = fence == "sh"
			fence = ""
		case isFence:
			words := strings.Fields(rest)
			if len(words) == 0 {
				return nil, fmt.Errorf("%d: a fence that is neither ```sh nor ```text", n)
			}
			fence, open = words[0], n
			switch fence {
			case "sh":
				b, err := newBlock(n, words[1:])
				if err != nil {
					return nil, err
				}
				blocks = append(blocks, b)
			case "text":
				if !expectText {
					return nil, fmt.Errorf("%d: output without commands before it", n)
				}
				blocks[len(blocks)-1].wantLine = n + 1
			default:
				return nil, fmt.Errorf("%d: a fence that is neither ```sh nor ```text", n)
			}
		case fence == "sh":
			b := &blocks[len(blocks)-1]
			b.script += line + "\n"
			b.wantLine = n
		case fence == "text":
			b := &blocks[len(blocks)-1]
			b.want = append(b.want, line)
		}
	}
	if fence != "" {
		return nil, fmt.Errorf("%d: the fence that begins here never ends", open)
	}
	return blocks, nil
}

// newBlock makes the block of a fence at line n, with the words that follow sh.
func newBlock(n int, words []string) (block, error) {
	b := block{line: n + 1, wantLine: n + 1}
	for _, word := range words {
		switch word {
		case "containers":
			b.needs = word
		default:
			return b, fmt.Errorf("%d: %q means nothing after ```sh", n, word)
		}
	}
	return b, nil
}

// substitute replaces words wherever the drill says them, in commands and in what they print.
func (d *drill) substitute(lets [][2]string) {
	for _, let := range lets {
		for i := range d.blocks {
			b := &d.blocks[i]
			b.script = strings.ReplaceAll(b.script, let[0], let[1])
			for j := range b.want {
				b.want[j] = strings.ReplaceAll(b.want[j], let[0], let[1])
			}
		}
	}
}
