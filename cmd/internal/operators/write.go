package operators

import (
	"net/http"
	"strconv"
	"time"
)

// shortly is how long a client may take to read a short answer: it fits into the socket's buffer, so only
// one who asks on and on without reading notices.
const shortly = 5 * time.Second

// write answers with a text.
func write(w http.ResponseWriter, status int, text string) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(shortly)) // a recorder of tests has none
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // who does not want to know need not
}
