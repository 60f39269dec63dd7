package hostile

import (
	"io"
	"net"
	"sync"
	"time"
)

// stream is one direction of a connection in memory. It has a buffer as a socket
// has: net.Pipe has none, and a TLS alert and a flight that cross would wait for
// each other.
type stream struct {
	mu     sync.Mutex
	moved  *sync.Cond
	data   []byte
	closed bool // by the writer: what is there is still read
	broken bool // by the reader
}

const window = 64 << 10

func newStream() *stream {
	s := &stream{data: make([]byte, 0, window)}
	s.moved = sync.NewCond(&s.mu)
	return s
}

func (s *stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.data) == 0 && !s.closed && !s.broken {
		s.moved.Wait()
	}
	if s.broken {
		return 0, net.ErrClosed
	}
	if len(s.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.data)
	s.data = s.data[:copy(s.data, s.data[n:])]
	s.moved.Broadcast()
	return n, nil
}

func (s *stream) Write(p []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(p) > 0 {
		for len(s.data) == window && !s.closed && !s.broken {
			s.moved.Wait()
		}
		if s.closed || s.broken {
			return n, io.ErrClosedPipe
		}
		k := min(len(p), window-len(s.data))
		s.data = append(s.data, p[:k]...)
		n, p = n+k, p[k:]
		s.moved.Broadcast()
	}
	return n, nil
}

func (s *stream) end(closed *bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*closed = true
	s.moved.Broadcast()
}

// inMemory is one end of a connection.
type inMemory struct{ in, out *stream }

func newPipe() (client, server net.Conn) {
	a, b := newStream(), newStream()
	return inMemory{a, b}, inMemory{b, a}
}

func (c inMemory) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c inMemory) Write(p []byte) (int, error) { return c.out.Write(p) }

func (c inMemory) Close() error {
	c.out.end(&c.out.closed)
	c.in.end(&c.in.broken)
	return nil
}

// net/http and crypto/tls set deadlines only on connections that they are about to
// close.
func (inMemory) SetDeadline(time.Time) error      { return nil }
func (inMemory) SetReadDeadline(time.Time) error  { return nil }
func (inMemory) SetWriteDeadline(time.Time) error { return nil }
func (inMemory) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (inMemory) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
