// Package release makes and checks what a release consists of: the notices of the software of others that is in it, its
// bills of materials (CycloneDX and SPDX), its manifest, and an archive that is the same to the byte whoever builds it.
//
// It works on a folder with the files of the archive. parts.go finds out what is linked into them, notices.go,
// cyclonedx.go, spdx.go and manifest.go write that down, archive.go packs the folder, and check.go checks a folder, packed
// by anyone. internal/build puts the folder together; docs/release.md describes the result.
package release
