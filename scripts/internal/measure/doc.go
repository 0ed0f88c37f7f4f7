// Package measure has what every measuring program needs: processes that end with the program that started them, an etcd and a bare
// watcher of it, the resources that processes and the machine have used, and statistics that assume nothing about noise.
package measure
