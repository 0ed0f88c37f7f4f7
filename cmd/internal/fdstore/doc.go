// Package fdstore keeps listening sockets in the service manager's file descriptor store, so that they survive the process:
//
//	a port opens                     FDSTORE=1, with a copy of its socket ─▶ the manager
//	a port closes                    FDSTOREREMOVE=1 ─▶ the manager
//	the process is killed            the manager has the last copy: clients wait in its queue
//	the manager starts it again      the manager ─▶ LISTEN_FDS, LISTEN_FDNAMES
//
// The protocol is that of sd_notify(3) and sd_listen_fds(3). The manager says how many descriptors it keeps in the variable FDSTORE, which
// systemd sets since version 254 for a unit with FileDescriptorStoreMax=. Where that is missing and nothing was passed, there is no store.
//
// [Watchdog] asks the same manager how often it wants to hear that the process is alive (sd_watchdog_enabled(3)).
package fdstore
