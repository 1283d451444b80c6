//go:build !asan

package ortrunner

const addressSanitizer = false
