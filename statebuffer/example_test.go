package statebuffer_test

import (
	"encoding/binary"
	"fmt"
	"time"

	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// A model that adds its input to a state of one number, for two sequences in one run.
func ExampleStore() {
	layout, err := statebuffer.LayoutOf(tensor.Shape{1, 1}, 0, tensor.Int32)
	if err != nil {
		panic(err)
	}
	store, err := statebuffer.NewStore(statebuffer.Options{
		Memory:   &statebuffer.Heap{},
		States:   []statebuffer.State{{Name: "sum", Layout: layout}},
		Sizing:   statebuffer.Sizing{Initial: 8, MaxChunks: 1},
		MaxLanes: 4,
	})
	if err != nil {
		panic(err)
	}
	defer store.Close()

	now := time.Duration(0) // since a fixed moment
	a, _ := store.Begin(statebuffer.Key{Number: 1}, now)
	b, _ := store.Begin(statebuffer.Key{Number: 2}, now)
	lanes := []statebuffer.Lane{{Sequence: a}, {Sequence: b}}
	for range 3 {
		step, err := store.Gather(lanes, len(lanes)) // a third lane would be padding
		if err != nil {
			panic(err)
		}
		for lane, input := range []uint32{1, 10} { // the model
			sum := binary.NativeEndian.Uint32(step.In[0].Bytes[4*lane:]) + input
			binary.NativeEndian.PutUint32(step.Out[0].Bytes[4*lane:], sum)
			fmt.Printf("%s is %d\n", []string{"a", "b"}[lane], sum)
		}
		if err := store.Commit(step, now); err != nil {
			panic(err)
		}
	}
	store.End(statebuffer.Key{Number: 1})
	_, err = store.Continue(statebuffer.Key{Number: 1}, now)
	fmt.Println(err)
	// Output:
	// a is 1
	// b is 10
	// a is 2
	// b is 20
	// a is 3
	// b is 30
	// no such sequence is known; begin it again with a START request
}

// A failed run changes no state.
func ExampleStore_Abort() {
	store, err := statebuffer.NewStore(statebuffer.Options{
		Memory:   &statebuffer.Heap{},
		States:   []statebuffer.State{{Name: "letter", Layout: statebuffer.Layout{Pieces: 1, PieceBytes: 1}, Initial: []byte("a")}},
		Sizing:   statebuffer.Sizing{Initial: 1, MaxChunks: 1},
		MaxLanes: 1,
	})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	q, _ := store.Begin(statebuffer.Key{Text: "one"}, 0)
	run := func(write string, fails bool) {
		step, err := store.Gather([]statebuffer.Lane{{Sequence: q}}, 1)
		if err != nil {
			panic(err)
		}
		fmt.Printf("reads %s\n", step.In[0].Bytes)
		copy(step.Out[0].Bytes, write)
		if fails {
			store.Abort(step, 0)
		} else if err := store.Commit(step, 0); err != nil {
			panic(err)
		}
	}
	run("b", false)
	run("c", true)
	run("d", false)
	// Output:
	// reads a
	// reads b
	// reads b
}

// Two lanes of a tensor of shape [2, batch, 3], whose pieces interlace.
func ExampleLayout() {
	layout, err := statebuffer.LayoutOf(tensor.Shape{2, 1, 3}, 1, tensor.Uint8)
	if err != nil {
		panic(err)
	}
	batch := make([]byte, layout.BatchBytes(2))
	layout.PutLane(batch, 2, 0, []byte("aaaAAA"))
	layout.PutLane(batch, 2, 1, []byte("bbbBBB"))
	fmt.Printf("%d pieces of %d bytes: %s\n", layout.Pieces, layout.PieceBytes, batch)
	// Output: 2 pieces of 3 bytes: aaabbbAAABBB
}

// The chunks for at most 100 sequences: 40 slots at first, 20 more when fewer than 10
// are free.
func ExampleNewSizing() {
	sizing, err := statebuffer.NewSizing(100, 8, 1, &statebuffer.LazyBuffers{Initial: 40, Subsequent: 20, AllocThreshold: 10, DeallocThreshold: 60})
	fmt.Println(sizing.Total(), sizing.MaxChunks, err)
	// Output: 100 4 <nil>
}
