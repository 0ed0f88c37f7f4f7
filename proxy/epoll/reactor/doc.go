// Package reactor is what every event loop stands on, whatever it carries.
//
//   - [Slab]: slots with an index and a generation, which a [Token] carries; [FreeList]: spare values.
//   - [Poller]: what has happened on its descriptors; waiting, and being woken up.
//   - [Turn]: when the present turn began, and whether its time is used up.
//   - [Requests]: what other goroutines ask of the loop.
//   - [Searches]: how many attempts for endpoints a turn has room for, and look-ups of names beside the loop.
//   - [Pauses]: ports that the loop leaves alone for a while.
//   - [Heartbeat], [TurnTimes]: whether the loop still turns, and how long its turns take.
package reactor
