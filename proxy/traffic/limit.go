package traffic

// A Limit is something that there is only so much of.
type Limit struct {
	Name string // connections, udp_sessions, descriptors or listeners
	Used int
	Max  int
}
