package batchaxis

import (
	"fmt"

	"tritonstateful/internal/tensor"
)

func Text(name string, axis int) string {
	if axis == tensor.NoAxis {
		return fmt.Sprintf("no axis of %q", name)
	}
	return fmt.Sprintf("axis %d of %q", axis, name)
}
