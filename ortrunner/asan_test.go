//go:build asan

package ortrunner

// addressSanitizer keeps freed memory for a while, so that the process's size
// says nothing.
const addressSanitizer = true
