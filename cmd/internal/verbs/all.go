package verbs

// All returns the verbs, each new.
func All() []*Verb {
	return []*Verb{newStatus(), newLog(), newSessions(), newKill(), newWait(),
		newDrain(), newDisable(), newEnable(), newWeight(), newDrainNode(), newNames()}
}
