package statestore

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"time"
)

// A file of the folder store begins with a head, in little-endian numbers:
//
//	offset  size  content
//	     0     4  "TSSF"
//	     4     4  format, 1
//	     8     8  epoch of the owner
//	    16     8  time when the file expires, in nanoseconds since 1970 (UTC); 0: never
//	    24     8  size of the value in bytes; 0: none is saved
//	    32     8  steps that the sequence has ended with; 0: it has not
//	    40     4  length of the key
//	    44     4  CRC-32C of the 44 bytes above and the key
//	    48     n  key
//
// The value is at the next multiple of 64 after the key, so that its tensors are aligned
// in the file too.
const (
	fileMagic    = "TSSF"
	fileVersion  = 1
	fileHeadSize = 48
	fileLengthAt = 40
	fileCRCAt    = 44
	maxKey       = 1 << 16
)

type fileHead struct {
	key     string
	epoch   uint64
	expires time.Time // zero: never
	size    int64     // of the value
	ended   uint64    // how many steps the sequence has ended with; 0: it has not
}

func (h *fileHead) expired(now time.Time) bool {
	return !h.expires.IsZero() && !now.Before(h.expires)
}

// ErrDamaged is a file that no Store wrote, or not completely: a machine lost its power
// or its disk is bad. It is replaced when its sequence begins or is saved.
var ErrDamaged = errors.New("the file is damaged")

// bytes returns the head as it is in the file, with the zeros before the value.
func (h *fileHead) bytes() []byte {
	b := make([]byte, h.start())
	copy(b, fileMagic)
	little.PutUint32(b[4:], fileVersion)
	little.PutUint64(b[8:], h.epoch)
	if !h.expires.IsZero() {
		little.PutUint64(b[16:], uint64(h.expires.UnixNano()))
	}
	little.PutUint64(b[24:], uint64(h.size))
	little.PutUint64(b[32:], h.ended)
	little.PutUint32(b[fileLengthAt:], uint32(len(h.key)))
	copy(b[fileHeadSize:], h.key)
	little.PutUint32(b[fileCRCAt:], fileChecksum(b, len(h.key)))
	return b
}

func fileChecksum(b []byte, key int) uint32 {
	return crc32.Update(crc32.Checksum(b[:fileCRCAt], castagnoli), castagnoli, b[fileHeadSize:fileHeadSize+key])
}

// readFileHead reads the head of a file.
func readFileHead(f *os.File) (h fileHead, err error) {
	b := make([]byte, 512) // most keys are short
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return h, err
	}
	if n < fileHeadSize || string(b[:4]) != fileMagic {
		return h, fmt.Errorf("%w: it does not begin with %s", ErrDamaged, fileMagic)
	}
	if format := little.Uint32(b[4:]); format != fileVersion {
		return h, fmt.Errorf("the file has format %d: this version reads %d", format, fileVersion)
	}
	length := int(little.Uint32(b[fileLengthAt:]))
	if end := fileHeadSize + length; end > n && length <= maxKey {
		b = make([]byte, end)
		if n, err = f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
			return h, err
		}
	}
	if length > n-fileHeadSize || fileChecksum(b, length) != little.Uint32(b[fileCRCAt:]) {
		return h, fmt.Errorf("%w: the checksum of its head is wrong", ErrDamaged)
	}
	h.key = string(b[fileHeadSize : fileHeadSize+length])
	h.epoch = little.Uint64(b[8:])
	h.size = int64(little.Uint64(b[24:]))
	h.ended = little.Uint64(b[32:])
	if at := little.Uint64(b[16:]); at != 0 {
		h.expires = time.Unix(0, int64(at))
	}
	return h, nil
}

// readStep returns the number of steps of the value of a file.
func (h *fileHead) readStep(f *os.File) (uint64, error) {
	if err := h.check(f); err != nil {
		return 0, err
	}
	head := make([]byte, min(h.size, stepAt+8))
	_, err := f.ReadAt(head, h.start())
	return stepOf(head), err
}

// check reports whether a file has as many bytes as its head says.
func (h *fileHead) check(f *os.File) error {
	info, err := f.Stat()
	if err == nil && info.Size()-h.start() != h.size {
		err = fmt.Errorf("%s: %w: it has %d bytes of a value of %d", f.Name(), ErrDamaged, info.Size()-h.start(), h.size)
	}
	return err
}

// start is where the value begins.
func (h *fileHead) start() int64 { return align(fileHeadSize+int64(len(h.key)), alignment) }

// readValue returns the value of a file, nil if it has none.
func (h *fileHead) readValue(f *os.File) ([]byte, error) {
	if h.size == 0 {
		return nil, nil
	}
	if err := h.check(f); err != nil {
		return nil, err
	}
	value := make([]byte, h.size)
	_, err := f.ReadAt(value, h.start())
	return value, err
}
