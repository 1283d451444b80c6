//go:build asan

package ortrunner

// addressSanitizer keeps freed memory for a while, so that the process's size
// tells nothing.
const addressSanitizer = true
