package statebuffer

// Scratch is memory that each run of a model overwrites, such as a batched tensor whose
// size varies from run to run. It is allocated when it is first needed, grows as it
// must, and gives back what has not been needed for a while, so that one large run does
// not hold its memory for ever. The zero Scratch is empty; Free gives back what it has.
type Scratch struct {
	Block
	most int64 // needed since runs were last counted
	runs int
}

// Scratch shrinks after scratchRuns runs of which none needed a quarter of it, unless it
// has no more than scratchKept bytes. To free memory and allocate it again costs as much as
// filling it, which is little next to that many runs.
const (
	scratchRuns = 64
	scratchKept = 1 << 20
)

// Begin is called when a run begins, and nothing in the memory is needed any more.
func (s *Scratch) Begin(m Memory) {
	if s.runs++; s.runs < scratchRuns {
		return
	}
	if s.Size > scratchKept && s.most < s.Size/4 {
		s.Free(m)
	}
	s.runs, s.most = 0, 0
}

// Reserve makes it at least that large. What was in it is lost, unless it was large
// enough.
func (s *Scratch) Reserve(m Memory, bytes int64) error {
	s.most = max(s.most, bytes)
	if s.Size >= bytes {
		return nil
	}
	grown, err := m.Alloc(Capacity(bytes))
	if err != nil {
		return err
	}
	s.Free(m)
	s.Block = grown
	return nil
}

// Free gives back the memory.
func (s *Scratch) Free(m Memory) {
	if s.Size > 0 {
		m.Free(s.Block)
	}
	s.Block = Block{}
}

// Capacity is how much to allocate for that many bytes, wherever memory grows: the next
// power of two, so that what grows by a little each run is seldom moved.
func Capacity(bytes int64) int64 {
	c := int64(256)
	for c < bytes && c < 1<<62 {
		c *= 2
	}
	return c
}
