package tcp

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// Whatever has happened to a connection, its way to the end goes on in a successor as it would have here.
func TestATeardownGoesOnAsItWas(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		here, now := Teardown{}, time.Duration(1)
		for step := range 8 {
			side := Side(rng.IntN(2))
			switch err := error([]syscall.Errno{syscall.ECONNRESET, syscall.ETIMEDOUT, syscall.EPIPE}[rng.IntN(3)]); rng.IntN(5) {
			case 0:
				here.Ended(side, nil)
			case 1:
				here.Ended(side, err)
			case 2:
				here.Unwritable(side, err)
			case 3:
				here.IsSilent(now, rng.Uint64N(3), time.Second)
			case 4:
				here.Doubt(side)
			}
			now += time.Duration(rng.IntN(2)) * time.Second / 2
			message := here.Export(now)
			if there := AdoptTeardown(&message, now); there != here {
				t.Fatalf("seed %d, step %d: %+v became %+v, by way of %+v", seed, step, here, there, message)
			}
		}
	}
}
