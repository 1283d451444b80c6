package ortrunner

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
)

// checkWhole refuses a truncated library, as after a copy to a full disk: dlopen would
// end the process by SIGBUS. A file that is not a library at all is left to dlopen,
// whose error says so.
func checkWhole(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	const remedy = "copy the backend's folder again, and check that the disk is not full"
	library, err := elf.NewFile(file)
	switch format := (*elf.FormatError)(nil); {
	case errors.As(err, &format):
		return nil
	case err != nil: // the file ends within its headers
		return fmt.Errorf("it is truncated: it ends after %d bytes: %s", info.Size(), remedy)
	}
	for _, part := range library.Progs {
		if end := part.Off + part.Filesz; end > uint64(info.Size()) {
			return fmt.Errorf("it is truncated: it has %d of at least %d bytes: %s", info.Size(), end, remedy)
		}
	}
	return nil
}
