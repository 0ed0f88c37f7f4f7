// Package model says what the two sides of a connection do, and judges what they saw. It does no I/O, and knows nothing of engines: what
// it accepts follows from docs/guarantees.md, whoever carries the connection.
//
// A [Script] is drawn from a seed and a number. Whoever plays it notes what each side did and saw, as a [Side]. [Judge] compares the two
// with each other and with the line that kube-proxy logged:
//
//   - Bytes that a side received are the first bytes that the other side sent (C6).
//   - A side sees a clean end only if the other side ended cleanly and all of its bytes arrived (C5).
//   - A side sees a reset only if the other side reset its connection, or left before it had received all.
//   - What kube-proxy had acknowledged before a side reset reaches the other side first (C5, C6).
//   - Each connection ends: no side waits for ever.
//   - The connection log has one line, with the bytes that were carried and the reason that the sides gave.
//
// [Flows] is the ledger of datagrams: what was sent is what arrived, what kube-proxy counted as dropped, and what kernels dropped (C9 to C12).
//
// Where a kernel decides, the rules are weaker, and their comments say why.
package model
