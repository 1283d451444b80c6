package tensor_test

import (
	"fmt"

	"tritonstateful/internal/tensor"
)

func ExampleShape() {
	dims := tensor.Shape{tensor.Dynamic, 3, 224} // as a model declares it, the batch outermost
	fmt.Println(dims.Fixed(), dims.Without(0), dims.With(0, 4))
	bytes, err := dims.With(0, 4).Bytes(tensor.FP16)
	fmt.Println(bytes, err)
	_, err = dims.Bytes(tensor.FP16)
	fmt.Println(err)
	// Output:
	// false [3,224] [4,3,224]
	// 5376 <nil>
	// shape [-1,3,224] has an extent that is not fixed
}
