package proxy

// Reserve tells how many of this process's descriptors clients never get. Whatever else the process
// opens has to fit into it.
func Reserve() int {
	b := newBudget(descriptorLimit())
	return b.limit - b.clients
}
