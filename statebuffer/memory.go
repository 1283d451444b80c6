package statebuffer

// Memory is where states and batched tensors are: in host memory, or a device's.
// Nothing above it knows which. One goroutine uses a Memory at a time.
type Memory interface {
	// Alloc gives a block of that many bytes, all zero, aligned for any element
	// type and vector width (64 bytes at least). An error says how much was
	// asked for; nothing is held then.
	Alloc(bytes int64) (Block, error)
	// Free gives back what Alloc gave. The block's bytes must not be touched
	// afterwards.
	Free(Block)
	// Clear overwrites blocks, or parts of them, with zeros, before anything else
	// reads or writes them. What cannot be overwritten on a device is an error of
	// the next Gather or Scatter.
	Clear([]Block)
	// Gather copies slots of a store to the lanes of batched tensors.
	Gather([]Transfer) error
	// Scatter copies the lanes of batched tensors to slots of a store.
	Scatter([]Transfer) error
}

// Uploader is a Memory whose blocks the host cannot address.
type Uploader interface {
	// Upload fills the beginning of a block, and waits until that is done.
	Upload(to Block, from []byte) error
}

// Downloader is a Memory whose blocks the host cannot address.
type Downloader interface {
	// Download fills to with the bytes of blocks, one after the other, and waits until
	// that is done. The blocks have at least that many.
	Download(to []byte, from ...Block) error
}

// CapacityChecker is a Memory that knows beforehand what it has room for.
type CapacityChecker interface {
	// CheckCapacity is nil if that many more bytes are free at this moment; otherwise it says
	// how many are.
	CheckCapacity(bytes int64) error
}

// Discarder is a Memory that gives what it does not need back to the system.
type Discarder interface {
	// Discard makes the bytes of a whole block zero. The block keeps its address, and takes
	// memory again as it is written.
	Discard(Block)
}

// CheckCapacity asks a Memory that is a CapacityChecker; of others it reports nil.
func CheckCapacity(m Memory, bytes int64) error {
	if checker, ok := m.(CapacityChecker); ok {
		return checker.CheckCapacity(bytes)
	}
	return nil
}

// write fills the beginning of a block from the host.
func write(m Memory, to Block, from []byte) error {
	if device, ok := m.(Uploader); ok && to.Bytes == nil {
		return device.Upload(to, from)
	}
	copy(to.Bytes, from)
	return nil
}

// read copies blocks to the host, one after the other.
func read(m Memory, to []byte, from []Block) error {
	if device, ok := m.(Downloader); ok {
		return device.Download(to, from...)
	}
	for i := range from {
		to = to[copy(to, from[i].Bytes[:from[i].Size]):]
	}
	return nil
}

// Block is a piece of a Memory, or a part of one. It is a borrowed view: the
// Memory that gave it owns the bytes.
type Block struct {
	// Addr is the address in the memory's own space; the runner binds it.
	Addr uint64
	// Bytes is the same memory as the host sees it; nil on a device.
	Bytes []byte
	// Size is the length in bytes, also on a device.
	Size int64
}

// At is the part of b of that many bytes from offset on.
func (b Block) At(offset, size int64) Block {
	part := Block{Addr: b.Addr + uint64(offset), Size: size}
	if b.Bytes != nil {
		part.Bytes = b.Bytes[offset : offset+size : offset+size]
	}
	return part
}

// Conversion is what happens to the elements on the way.
type Conversion uint8

const (
	// Same copies the bytes as they are.
	Same Conversion = iota
	// Half stores FP32 elements as FP16: Scatter rounds to nearest even and
	// clamps what is too large to the largest finite FP16, Gather widens.
	Half
)

// Slot is where a store keeps one value of every state: a chunk and an index in it.
// The zero Slot is a valid one.
type Slot struct {
	Chunk int32
	Index int32
}

// The values of Slot that name no slot.
var (
	// NoSlot as a destination: the lane is discarded.
	NoSlot = Slot{Chunk: -1}
	// InitialSlot as a source: the lane gets the state's initial value.
	InitialSlot = Slot{Chunk: -2}
)

// Transfer is the movement of one state between its slots and a batched tensor.
type Transfer struct {
	// Layout is that of the batched tensor; a slot holds Layout.LaneBytes too,
	// or half of them with Half.
	Layout
	Convert Conversion
	// Chunks are the blocks that hold this state's slots, by Slot.Chunk.
	Chunks []Block
	// Initial is the slot that InitialSlot stands for.
	Initial Block
	// Slots names the slot of each of the first len(Slots) lanes.
	Slots []Slot
	// Tensor is the batched tensor, and Lanes the number of its lanes; lanes
	// from len(Slots) on are padding, which Gather fills with Initial.
	Tensor Block
	Lanes  int
	// Saturated, if not nil, counts elements that Half had to clamp.
	Saturated *uint64
}

// StoredBytes is the size of a slot in the store.
func (t *Transfer) StoredBytes() int64 {
	if t.Convert == Half {
		return t.LaneBytes() / 2
	}
	return t.LaneBytes()
}
