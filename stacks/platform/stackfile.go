package platform

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/stacks/internal/configschema"
)

// StackFile reads a Pulumi.<stack>.yaml into the values that Pulumi would hand the program: strings as they are,
// everything else as JSON. Of keys that are this program's it refuses encrypted values, for which Pulumi's own passphrase
// would be needed; those of others it leaves out.
func StackFile(data []byte) (map[string]string, error) {
	var file struct {
		Config map[string]any `json:"config"`
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("read the stack file: %w", err)
	}
	values := make(map[string]string, len(file.Config))
	for key, value := range file.Config {
		if text, ok := value.(string); ok {
			values[key] = text
			continue
		}
		if object, ok := value.(map[string]any); ok && len(object) == 1 && object["secure"] != nil {
			if !strings.HasPrefix(key, configschema.KeyPrefix) {
				continue
			}
			return nil, fmt.Errorf("%s: %w", key, errEncrypted)
		}
		encoded, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("%s: encode: %w", key, err)
		}
		values[key] = string(encoded)
	}
	return values, nil
}

// ClusterOf says which cluster Pulumi's provider takes by the stack's file; both empty: that of KUBECONFIG. What cannot be
// told from the file alone is an error, for whoever guessed could look at one cluster while Pulumi changes another.
func ClusterOf(data []byte) (kubeconfig, kubeContext string, err error) {
	var file struct {
		Config map[string]any `json:"config"`
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		return "", "", fmt.Errorf("read the stack file: %w", err)
	}
	text := func(key string) string {
		value := file.Config[key]
		if value == nil || err != nil {
			return ""
		}
		plain, ok := value.(string)
		if !ok {
			err = fmt.Errorf("%s: %w, and so it is not known which cluster Pulumi uses: "+
				"take it out of the file and set KUBECONFIG, or write it there in the clear", key, errEncrypted)
		}
		return plain
	}
	kubeconfig, kubeContext = text("kubernetes:kubeconfig"), text("kubernetes:context")
	if text("kubernetes:cluster") != "" {
		err = errors.New("kubernetes:cluster: is not supported here: name a context of that cluster in kubernetes:context")
	}
	return kubeconfig, kubeContext, err
}

var errEncrypted = errors.New("is encrypted and cannot be read from the file")
