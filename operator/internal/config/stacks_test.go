package config_test

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/operator/internal/config"
)

// A stack knows these rules too, though it imports nothing of the operator; its own test reads the same file.
func TestWhatStacksRefuseIsRefusedHere(t *testing.T) {
	content, err := os.ReadFile("testdata/stacks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Path   string         `json:"path"`
		Config map[string]any `json:"config"`
	}
	if err := yaml.UnmarshalStrict(content, &cases); err != nil {
		t.Fatal(err)
	}
	for _, tc := range cases {
		body, err := yaml.Marshal(tc.Config)
		if err != nil {
			t.Fatal(err)
		}
		_, err = config.Parse([]byte(head + "namespaces: []\n" + string(body)))
		switch {
		case tc.Path == "" && err != nil:
			t.Errorf("%s: %v", body, err)
		case tc.Path != "" && (err == nil || !strings.Contains(err.Error(), tc.Path)):
			t.Errorf("%s: the error does not name %s: %v", body, tc.Path, err)
		}
	}
}
