package main

// version is that of this library. The build sets it, by -X main.version=v1.2.3; a
// library that go build made alone says "unversioned".
var version = "unversioned"
