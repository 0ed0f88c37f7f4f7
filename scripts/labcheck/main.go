// Labcheck does what the drills say, and compares what comes out with what the drills say comes out.
//
//	labcheck [-v] [-without WORD]... [-let OLD=NEW]... [DRILL.md...]
//
// Without names it takes docs/lab/[0-9]*.md, in order. Commands run from the working directory, all
// of one drill in one bash. See [parse] for what a drill looks like and [mismatch] for how lines are
// compared. It prints each drill's time, and for each failure the file and line, what was expected
// and what came.
//
// -let replaces a word wherever a drill says it, in commands and in output; so the same drills run where
// the addresses are others. -without leaves out the blocks that need what the word names, and counts them.
// -v prints the blocks while they run.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	flag.Usage = func() {
		fmt.Fprint(os.Stderr, `Usage: labcheck [-v] [-without WORD]... [-let OLD=NEW]... [DRILL.md...]
Runs every command of the drills (docs/lab/[0-9]*.md, if none is named), and compares the output.
  -let OLD=NEW    the drills say OLD where this lab has NEW
  -without WORD   leave out blocks that need WORD
  -v              print each block while it runs
`)
	}
	verbose := flag.Bool("v", false, "")
	var lets [][2]string
	flag.Func("let", "", func(s string) error {
		from, to, ok := strings.Cut(s, "=")
		if !ok || from == "" {
			return fmt.Errorf("%q is not OLD=NEW", s)
		}
		lets = append(lets, [2]string{from, to})
		return nil
	})
	without := make(map[string]bool)
	flag.Func("without", "", func(s string) error {
		without[s] = true
		return nil
	})
	flag.Parse()

	files := flag.Args()
	if len(files) == 0 {
		files, _ = filepath.Glob("docs/lab/[0-9]*.md") // the pattern is not malformed
	}
	if len(files) == 0 {
		fmt.Fprintln(os.Stderr, "labcheck: there is no drill at docs/lab/[0-9]*.md")
		os.Exit(1)
	}
	failed, start := 0, time.Now()
	for _, file := range files {
		d, err := load(file)
		if err == nil {
			d.substitute(lets)
			err = check(d, without, *verbose)
		}
		if err != nil {
			failed++
			fmt.Printf("FAIL %v\n", err)
		}
	}
	if failed > 0 {
		fmt.Printf("%d of %d drills failed\n", failed, len(files))
		os.Exit(1)
	}
	fmt.Printf("%d drills are true, in %.1fs\n", len(files), time.Since(start).Seconds())
}

// check runs one drill up to its first failure, and prints its time.
func check(d *drill, without map[string]bool, verbose bool) error {
	sh, err := startShell()
	if err != nil {
		return err
	}
	defer sh.close()
	start, ran, left := time.Now(), 0, 0
	for _, b := range d.blocks {
		if b.needs != "" && without[b.needs] {
			left++
			continue
		}
		if verbose {
			fmt.Printf("%s:%d\n%s", d.file, b.line, indent(b.script))
		}
		if err := checkBlock(sh, d.file, b); err != nil {
			return err
		}
		ran++
	}
	note := ""
	if left > 0 {
		note = fmt.Sprintf(", %d not here", left)
	}
	fmt.Printf("ok   %-44s %5.1fs  %d blocks%s\n", d.file, time.Since(start).Seconds(), ran, note)
	return nil
}

func checkBlock(sh *shell, file string, b block) error {
	got, err := sh.run(b.script)
	if err != nil {
		return fmt.Errorf("%s:%d: %w", file, b.line, err)
	}
	if line, problem := mismatch(b.want, got); problem != "" {
		return fmt.Errorf("%s:%d: %s\n  in all, this came:\n%s", file, b.wantLine+line, problem, indent(strings.Join(got, "\n")))
	}
	return nil
}

func indent(text string) string {
	text = strings.TrimSuffix(text, "\n")
	if text == "" {
		return "    (nothing)\n"
	}
	return "    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n"
}
