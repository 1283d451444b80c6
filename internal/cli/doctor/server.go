package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 16 << 20

// Ask adds a running server and its models. address is that of its HTTP service, such as
// http://localhost:8000.
func (s *Subject) Ask(ctx context.Context, address string) error {
	address = strings.TrimRight(address, "/")
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	var server struct {
		Version string `json:"version"`
	}
	if err := call(ctx, http.MethodGet, address+"/v2", &server); err != nil {
		return err
	}
	s.Server = &Server{URL: address, Version: parseVersion(server.Version)}
	var index []struct {
		Name    string `json:"name"`
		Version string `json:"version"`
		State   string `json:"state"`
	}
	if err := call(ctx, http.MethodPost, address+"/v2/repository/index", &index); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, entry := range index {
		if entry.State != "READY" || seen[entry.Name] {
			continue
		}
		seen[entry.Name] = true
		var config json.RawMessage
		if err := call(ctx, http.MethodGet, address+"/v2/models/"+url.PathEscape(entry.Name)+"/config", &config); err != nil {
			return err
		}
		model, err := parseModel("model "+entry.Name, config)
		if err != nil {
			return err
		}
		model.Completed = true
		s.Models = append(s.Models, model)
	}
	return nil
}

// call sends a request without a body, and decodes the answer.
func call(ctx context.Context, method, address string, answer any) error {
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(nil))
	if err != nil {
		return fmt.Errorf("ask the server: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask the server: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("ask the server for %s: %w", address, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask the server for %s: %s: %s", address, response.Status, bytes.TrimSpace(body))
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("ask the server for %s: want the HTTP service of a tritonserver: %w", address, err)
	}
	return nil
}
