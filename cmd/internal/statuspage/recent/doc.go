// Package recent remembers what the status page shows of the last minutes: how fast counters grow, what a service carried,
// what was listed of it, and why the last clients left.
//
// Rates and histories are made of counters that are read when somebody looks, so they cost nothing while nobody does. Only
// [Endings] are recorded all the time.
package recent
