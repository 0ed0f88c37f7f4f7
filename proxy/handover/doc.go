// Package handover says what a live connection is: all that another process needs to go on with it, and nothing else.
//
// A TCP connection is two sockets, the bytes that were read from one and not yet written to the other, and what is known of how it
// ends: see [TCP]. A UDP session is one connected socket, and what its client waits for: see [UDP]. Beside them go the
// listeners with the order of their claims ([Listener]), and what the balancer has learned ([Rotation], [Affinities]). Counters are
// not here: the package that reports them to operators carries them over.
//
// A message and its descriptors are one [takeover.Item]. Encode makes one, Decode reads it back:
//
//   - Times are durations, before or after the moment of encoding: clocks of two processes do not agree.
//   - Names stand for themselves: services, endpoints and reasons are written in full, as their numbers may differ between releases.
//   - A later release may add fields at the end of a message. A reader takes fields that are missing as zero, and ignores those it
//     does not know. So releases understand each other in both directions.
//   - Any other change of a message needs a new [Version]. Processes of different versions hand over listeners only.
//
// Decode believes nothing: it fails on whatever no predecessor would have written, and what it allocates is in proportion to the size of the message.
package handover
