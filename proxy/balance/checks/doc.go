// Package checks asks endpoints again and again whether they answer, also while no client comes.
//
// A [Checker] has one [Target] for each address and question, however many services have the endpoint, and tells their watchers when
// the target fails or passes. One goroutine makes all checks. They are spread over the interval, and so many at most are under
// way that the descriptors allow. An address that was not checked yet counts as one that answers.
package checks
