package statestore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseURL(t *testing.T) {
	for address, want := range map[string]target{
		"file:/var/lib/states":             {network: "file", address: "/var/lib/states"},
		"file:///var/lib/states/":          {network: "file", address: "/var/lib/states"},
		"file:/a%20b c":                    {network: "file", address: "/a b c"},
		"valkey://cache":                   {network: "tcp", address: "cache:6379"},
		"redis://cache:1234/":              {network: "tcp", address: "cache:1234"},
		"valkey://10.0.0.1/3":              {network: "tcp", address: "10.0.0.1:6379", db: 3},
		"valkey://[::1]:7000/12":           {network: "tcp", address: "[::1]:7000", db: 12},
		"valkey://[::1]":                   {network: "tcp", address: "[::1]:6379"},
		"valkeys://cache.example:6380":     {network: "tcp", address: "cache.example:6380", tlsName: "cache.example"},
		"rediss://[::1]":                   {network: "tcp", address: "[::1]:6379", tlsName: "::1"},
		"unix:///run/valkey.sock":          {network: "unix", address: "/run/valkey.sock"},
		"unix:///run/valkey.sock?db=2":     {network: "unix", address: "/run/valkey.sock", db: 2},
		"valkey://ann:s%40cret@cache":      {network: "tcp", address: "cache:6379", user: "ann", password: "s@cret", credentials: true, shown: "valkey://cache"},
		"rediss://:secret@cache/1":         {network: "tcp", address: "cache:6379", db: 1, tlsName: "cache", password: "secret", credentials: true, shown: "rediss://cache/1"},
		"unix://ann:secret@/run/valkey.so": {network: "unix", address: "/run/valkey.so", user: "ann", password: "secret", credentials: true, shown: "unix:///run/valkey.so"},
	} {
		got, err := parseURL(address)
		require.NoError(t, err, address)
		if want.shown == "" {
			want.shown = address
		}
		require.Equal(t, want, *got, address)
	}
}

func TestOpenRefuses(t *testing.T) {
	for address, want := range map[string]string{
		"":                               "begins with file:, valkey://",
		"none":                           "begins with file:, valkey://",
		"http://cache":                   `the URL "http://cache": want one that begins with`,
		"/var/lib/states":                "begins with file:",
		"file:states":                    "want an absolute path",
		"file:":                          "want an absolute path",
		"file://host/states":             "want an absolute path",
		"file:/states?x=1":               "want an absolute path",
		"valkey:cache":                   "want a host",
		"valkey:///0":                    "want a host",
		"valkey://cache:x":               "cannot be parsed",
		"valkey://cache:99999":           `its port is "99999"`,
		"valkey://cache/one":             `its database is "one": want a number`,
		"valkey://cache/-1":              `its database is "-1"`,
		"valkey://cache/0/1":             `its database is "0/1"`,
		"valkey://cache?db=1":            "want a host, and nothing but",
		"unix://run/valkey.sock":         "want the path of a socket",
		"unix:///run/valkey.sock?db=x":   `its database is "x"`,
		"unix:///run/valkey.sock?ttl=1":  "want the path of a socket",
		"unix:":                          "want the path of a socket",
		"valkey://ann:secret@cache":      "STATEFUL_STORE_PASSWORD",
		"valkey://ann@cache":             "STATEFUL_STORE_USER",
		"valkey://:secret@cache":         "STATEFUL_STORE_URL",
		"valkey://ann:secret%zz@cache":   `the URL "valkey://cache": it cannot be parsed`,
		"valkey://ann:sec@secret/@cache": `"valkey://cache`,
	} {
		s, err := Open(address)
		require.ErrorContains(t, err, want, address)
		require.Nil(t, s)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestURLFromEnvironment(t *testing.T) {
	t.Setenv(urlVariable, "")
	_, err := Open("env")
	require.ErrorContains(t, err, "STATEFUL_STORE_URL is not set")
	t.Setenv(urlVariable, "file:"+t.TempDir())
	s, err := Open("env")
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Check(t.Context()))
	t.Setenv(urlVariable, "valkey://ann:secret@cache:x")
	_, err = Open("env")
	require.ErrorContains(t, err, "valkey://cache:x")
	require.NotContains(t, err.Error(), "secret")
}
