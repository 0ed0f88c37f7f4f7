package model

import "testing"

const some = 20000

func TestTheSameNumberMakesTheSameScript(t *testing.T) {
	seen := make(map[Script]bool)
	for number := range uint64(some) {
		s := Draw(1, number)
		if s != Draw(1, number) {
			t.Fatalf("number %d makes two scripts", number)
		}
		seen[s] = true
	}
	if len(seen) < some*9/10 {
		t.Errorf("%d numbers make %d different scripts", some, len(seen))
	}
}

func TestEachScriptComesToAnEnd(t *testing.T) {
	for number := range uint64(some) {
		s := Draw(1, number)
		if s.Client.End == FinishLast && s.Endpoint.End == FinishLast {
			t.Errorf("number %d: each side waits for the other: %v", number, s)
		}
		for _, of := range []struct{ self, other Part }{{s.Client, s.Endpoint}, {s.Endpoint, s.Client}} {
			if of.self.End == ResetSending && of.self.At > Greeting+of.self.Bytes || of.self.End == ResetReading && of.self.At > Greeting+of.other.Bytes {
				t.Errorf("number %d: a reset at a byte that does not come: %v", number, s)
			}
		}
	}
}

func TestScriptsHaveEverythingThatTheyCanHave(t *testing.T) {
	type kind struct {
		service          Service
		client, endpoint End
	}
	seen := make(map[kind]int)
	for number := range uint64(some) {
		s := Draw(1, number)
		seen[kind{s.Service, s.Client.End, s.Endpoint.End}]++
	}
	if want := int(NumServices) * (5*5 - 1); len(seen) != want {
		t.Errorf("%d kinds of connections; want %d", len(seen), want)
	}
}
