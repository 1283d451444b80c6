package devicememory

import (
	"errors"
	"fmt"

	"tritonstateful/statebuffer"
)

// mostPinned is how much of a value is copied at a time, between the device and the host.
// Pinned memory, which alone the device can access asynchronously, is scarce, and takes
// longer to allocate than to copy; so that much of it is kept.
const mostPinned = 4 << 20

// Upload fills the beginning of a block from the host, and waits for it.
func (m *Memory) Upload(to statebuffer.Block, from []byte) error {
	if int64(len(from)) > to.Size {
		return fmt.Errorf("uploading %d bytes: the block has %d", len(from), to.Size)
	}
	if err := m.reservePinned(len(from)); err != nil {
		return fmt.Errorf("uploading %d bytes: %w", len(from), err)
	}
	for address := to.Addr; len(from) > 0; {
		n := copy(m.pinned, from)
		if err := errors.Join(m.flush(), m.stream.CopyIn(address, m.pinned[:n]), m.Sync()); err != nil {
			return err
		}
		from, address = from[n:], address+uint64(n)
	}
	return nil
}

// Download implements statebuffer.Downloader.
func (m *Memory) Download(to []byte, from ...statebuffer.Block) error {
	has := int64(0)
	for i := range from {
		has += from[i].Size
	}
	if int64(len(to)) > has {
		what := "the block has"
		if len(from) != 1 {
			what = "the blocks have"
		}
		return fmt.Errorf("downloading %d bytes: %s %d", len(to), what, has)
	}
	if err := m.reservePinned(len(to)); err != nil {
		return fmt.Errorf("downloading %d bytes: %w", len(to), err)
	}
	offset := int64(0) // of what has been copied of the first block
	for len(to) > 0 {
		err := m.flush()
		piece := m.pinned[:min(len(m.pinned), len(to))]
		for rest := piece; len(rest) > 0; {
			n := min(int64(len(rest)), from[0].Size-offset)
			err = errors.Join(err, m.stream.CopyOut(rest[:n], from[0].Addr+uint64(offset)))
			if rest, offset = rest[n:], offset+n; offset == from[0].Size {
				from, offset = from[1:], 0
			}
		}
		if err := errors.Join(err, m.Sync()); err != nil {
			return err
		}
		to = to[copy(to, piece):]
	}
	return nil
}

// reservePinned makes sure that there is enough pinned memory to copy that many bytes.
func (m *Memory) reservePinned(bytes int) error {
	bytes = min(bytes, mostPinned)
	if len(m.pinned) >= bytes {
		return nil
	}
	if err := m.freePinned(); err != nil {
		return err
	}
	pinned, err := m.context.HostAlloc(statebuffer.Capacity(int64(bytes)))
	m.pinned = pinned
	return err
}

func (m *Memory) freePinned() (err error) {
	if m.pinned != nil {
		err = errors.Join(m.stream.Sync(), m.context.HostFree(m.pinned))
	}
	m.pinned = nil
	return err
}
