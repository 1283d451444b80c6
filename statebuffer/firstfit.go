package statebuffer

// firstFit finds the first of several counts that is large enough, in steps that
// grow with the logarithm of how many there are. It is a tree in an array: the counts
// are its last half, and each node before is the larger of its two children, 2i and
// 2i+1.
type firstFit struct{ most []int32 }

// extend makes room for that many counts; the new ones are 0.
func (f *firstFit) extend(counts int) {
	have := len(f.most) / 2
	if counts <= have {
		return
	}
	size := max(1, have)
	for size < counts {
		size *= 2
	}
	most := make([]int32, 2*size)
	copy(most[size:], f.most[have:])
	for i := size - 1; i > 0; i-- {
		most[i] = max(most[2*i], most[2*i+1])
	}
	f.most = most
}

// set changes a count.
func (f *firstFit) set(at int, count int32) {
	i := len(f.most)/2 + at
	for f.most[i] != count {
		f.most[i] = count
		if i == 1 {
			return
		}
		i /= 2
		count = max(f.most[2*i], f.most[2*i+1])
	}
}

// first is the first count from one on that is at least least, or negative.
func (f *firstFit) first(from int, least int32) int {
	counts := len(f.most) / 2
	if from >= counts {
		return -1
	}
	i := counts + from
	for f.most[i] < least { // up, to the first tree on the right
		for i&1 == 1 {
			i /= 2
		}
		if i == 0 {
			return -1
		}
		i++
	}
	for i < counts { // down, to its first count
		if i *= 2; f.most[i] < least {
			i++
		}
	}
	return i - counts
}
