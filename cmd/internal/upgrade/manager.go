package upgrade

// A Manager hears of upgrades: the service manager.
type Manager interface {
	Reloading()
	GoesOn() // the reload is over, and this process serves as before
}
