// Package shares finds which of many positions has its turn, or is drawn, as often as its weight says, at a cost that does not depend on how many
// there are.
package shares
