package statestore

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/tensor"
)

var testHead = Head{
	Epoch: 1763800000000000, Step: 12, Saved: time.Unix(1763800000, 123456789),
	Model: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}, Layout: [8]byte{9, 10, 11, 12, 13, 14, 15, 16},
}

// sealed lays out a value; byte i of tensor t is t+i.
func sealed(t testing.TB, w *Writer, head Head, counters []uint64, tensors ...Tensor) []byte {
	t.Helper()
	require.NoError(t, w.Begin(counters, tensors))
	for i := range tensors {
		for j := range w.Tensor(i) {
			w.Tensor(i)[j] = byte(i + j)
		}
	}
	return w.Seal(head)
}

// someTensors are tensors of several types, ranks and sizes.
func someTensors() []Tensor {
	return []Tensor{
		{"h", tensor.FP32, tensor.Shape{2, 1, 5}},
		{"scalar", tensor.Int64, tensor.Shape{}},
		{"nothing yet", tensor.FP16, tensor.Shape{1, 0, 8}},
		{"größe/é", tensor.Bool, tensor.Shape{1, 3}},
		{"", tensor.BF16, tensor.Shape{1, 31, 1, 1}},
		{"none", tensor.Uint8, tensor.Shape{0}},
	}
}

func TestRoundTrip(t *testing.T) {
	var w Writer
	for n := range len(someTensors()) + 1 {
		for _, counters := range [][]uint64{{}, {0}, {7, math.MaxUint64, 1 << 40}} {
			tensors := someTensors()[:n]
			value := sealed(t, &w, testHead, counters, tensors...)
			record, err := Parse(value)
			require.NoError(t, err)
			require.Equal(t, testHead, record.Head)
			require.Equal(t, counters, record.Counters)
			require.Len(t, record.Tensors, n)
			for i, got := range record.Tensors {
				require.Equal(t, tensors[i], got.Tensor)
				require.Equal(t, w.Tensor(i), got.Data)
			}
		}
	}
}

// TestLayout compares a value with the package's comment.
func TestLayout(t *testing.T) {
	var w Writer
	value := sealed(t, &w, testHead, []uint64{12, 34}, Tensor{"cell", tensor.FP32, tensor.Shape{1, 2}}, Tensor{"n", tensor.Int8, tensor.Shape{1}})
	require.Equal(t, "TSST\x01\x00\x00\x00", string(value[:8]))
	require.Equal(t, testHead.Epoch, little.Uint64(value[8:]))
	require.Equal(t, testHead.Step, little.Uint64(value[16:]))
	require.Equal(t, int64(1763800000123456789), int64(little.Uint64(value[24:])))
	require.Equal(t, testHead.Model[:], value[32:40])
	require.Equal(t, testHead.Layout[:], value[40:48])
	require.Equal(t, uint64(len(value)-64), little.Uint64(value[48:]))
	require.Equal(t, uint32(0), little.Uint32(value[60:]))
	require.Equal(t, uint32(2), little.Uint32(value[64:]))
	require.Equal(t, uint32(2), little.Uint32(value[68:]))
	require.Equal(t, uint64(12), little.Uint64(value[72:]))
	require.Equal(t, uint64(34), little.Uint64(value[80:]))
	// 88: two entries of 24+16+4+4 and 24+8+1+4+3 bytes, which end at 176; the data are at 192 and 256.
	require.Equal(t, uint64(192), little.Uint64(value[88:]))
	require.Equal(t, uint64(8), little.Uint64(value[96:]))
	require.Equal(t, "cellFP32", string(value[128:136]))
	require.Equal(t, uint64(256), little.Uint64(value[136:]))
	require.Equal(t, "nINT8\x00\x00\x00", string(value[168:176]))
	require.Equal(t, []byte{0, 1, 2, 3, 4, 5, 6, 7, 0}, value[192:201])
	require.Len(t, value, 257)
}

func TestWriterIsReusable(t *testing.T) {
	var w, fresh Writer
	sealed(t, &w, testHead, []uint64{math.MaxUint64}, Tensor{"large", tensor.Uint8, tensor.Shape{1000}})
	require.Equal(t, sealed(t, &fresh, testHead, nil, someTensors()...), sealed(t, &w, testHead, nil, someTensors()...), "zeros between the tensors")

	head := testHead
	head.Epoch++
	record, err := Parse(w.Seal(head))
	require.NoError(t, err)
	require.Equal(t, head, record.Head, "another owner saves the same")
	tensors := someTensors()
	require.Zero(t, testing.AllocsPerRun(10, func() { _ = w.Begin(nil, tensors); w.Seal(testHead) }))
}

func TestWriterRefuses(t *testing.T) {
	var w Writer
	for _, wrong := range []Tensor{
		{"strings", tensor.Bytes, tensor.Shape{1}},
		{"dynamic", tensor.FP32, tensor.Shape{1, -1}},
		{"huge", tensor.FP32, tensor.Shape{1 << 40, 1 << 40}},
		{"large", tensor.Uint8, tensor.Shape{math.MaxInt64}},
		{strings.Repeat("n", 1<<16), tensor.Uint8, tensor.Shape{1}},
	} {
		require.ErrorContains(t, w.Begin(nil, []Tensor{{"first", tensor.FP32, tensor.Shape{100}}, wrong}), "lay out a state", wrong.Name)
	}
}

// reseal gives a value that was changed the checksum of its bytes.
func reseal(value []byte) []byte {
	little.PutUint32(value[crcAt:], checksum(value))
	return value
}

func TestParseRefuses(t *testing.T) {
	var w Writer
	good := bytes.Clone(sealed(t, &w, testHead, []uint64{5}, Tensor{"h", tensor.FP32, tensor.Shape{1, 2}}, Tensor{"c", tensor.FP32, tensor.Shape{1, 2}}))
	const first = 80 // the entry of h
	for name, c := range map[string]struct {
		change func(v []byte) []byte
		want   string
	}{
		"no bytes":            {func(v []byte) []byte { return nil }, "0 bytes: it has no head"},
		"half a head":         {func(v []byte) []byte { return v[:63] }, "no head"},
		"another magic":       {func(v []byte) []byte { v[0] = 'X'; return v }, `begins with "XSST"`},
		"another format":      {func(v []byte) []byte { v[4] = 2; return v }, "format 2: this version reads 1"},
		"a flag":              {func(v []byte) []byte { v[6] = 1; return reseal(v) }, "flags"},
		"reserved":            {func(v []byte) []byte { v[63] = 1; return reseal(v) }, "flags"},
		"cut off":             {func(v []byte) []byte { return v[:len(v)-1] }, "bytes follow"},
		"too long":            {func(v []byte) []byte { return append(v, 0) }, "bytes follow"},
		"a flipped bit":       {func(v []byte) []byte { v[200] ^= 1; return v }, "damaged"},
		"a flipped epoch":     {func(v []byte) []byte { v[8] ^= 1; return v }, "damaged"},
		"many counters":       {func(v []byte) []byte { v[67] = 0xff; return reseal(v) }, "do not fit"},
		"many tensors":        {func(v []byte) []byte { v[71] = 0xff; return reseal(v) }, "do not fit"},
		"another offset":      {func(v []byte) []byte { v[first] ^= 64; return reseal(v) }, `tensor "h": its data begin at`},
		"an offset far away":  {func(v []byte) []byte { v[first+7] = 0xff; return reseal(v) }, "its data begin at"},
		"another size":        {func(v []byte) []byte { v[first+8]++; return reseal(v) }, "tensor 0: it has 9 bytes: shape [1,2] of FP32 has 8"},
		"a long name":         {func(v []byte) []byte { v[first+17] = 0xff; return reseal(v) }, "no end"},
		"a long type":         {func(v []byte) []byte { v[first+19] = 0xff; return reseal(v) }, "no end"},
		"many axes":           {func(v []byte) []byte { v[first+23] = 0xff; return reseal(v) }, "no end"},
		"a negative extent":   {func(v []byte) []byte { v[first+31] = 0xff; return reseal(v) }, "not fixed"},
		"an unknown type":     {func(v []byte) []byte { v[first+41] = 'X'; return reseal(v) }, `"XP32" is unknown`},
		"tensors out of room": {func(v []byte) []byte { v = v[:len(v)-1]; v[lengthAt]--; return reseal(v) }, "do not fit"},
		"left over": {func(v []byte) []byte {
			v = append(v, 0)
			v[lengthAt]++
			return reseal(v)
		}, "1 bytes belong to no tensor"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(c.change(bytes.Clone(good)))
			require.ErrorContains(t, err, "read a saved state of")
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestEveryTruncationIsRefused(t *testing.T) {
	var w Writer
	good := sealed(t, &w, testHead, []uint64{5}, someTensors()...)
	for n := range len(good) {
		cut := bytes.Clone(good[:n])
		_, err := Parse(cut)
		require.Error(t, err)
		if n >= headSize {
			little.PutUint64(cut[lengthAt:], uint64(n-headSize))
			_, err = Parse(reseal(cut))
			require.Error(t, err, "%d of %d bytes, with the right length and checksum", n, len(good))
		}
	}
}

func TestKey(t *testing.T) {
	require.Equal(t, "tritonstateful:model/1:7", Key("model/1", "7"))
	require.Equal(t, `tritonstateful:model/1:"a:b"`, Key("model/1", `"a:b"`))
	require.NotEqual(t, Key("m:@x", "7"), Key("m", "@x:7"))
	require.NotEqual(t, Key("m:", "7"), Key("m%3A", "7"))
	require.True(t, strings.HasPrefix(Key("m", "7"), Key("m", "")))
	for _, namespace := range []string{"model/1", "m:@x", "m%3A", "%"} {
		got, id, ok := SplitKey(Key(namespace, `"a:b"`))
		require.True(t, ok)
		require.Equal(t, []string{namespace, `"a:b"`}, []string{got, id})
	}
	for _, other := range []string{"", "session:7", KeyPrefix + "check", KeyPrefix + ":7", Key("model/1", "")} {
		_, _, ok := SplitKey(other)
		require.False(t, ok, "%q", other)
	}
}

func ExampleWriter() {
	var w Writer
	if err := w.Begin([]uint64{3}, []Tensor{{"h", tensor.Uint8, tensor.Shape{1, 4}}}); err != nil {
		panic(err)
	}
	copy(w.Tensor(0), "\x01\x02\x03\x04")
	value := w.Seal(Head{Epoch: 1, Step: 3})
	record, err := Parse(value)
	if err != nil {
		panic(err)
	}
	for _, t := range record.Tensors {
		fmt.Println(t.Name, t.DType, t.Shape, t.Data, "after step", record.Step)
	}
	// Output: h UINT8 [1,4] [1 2 3 4] after step 3
}
