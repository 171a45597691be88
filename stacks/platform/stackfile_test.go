package platform_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/stacks/platform"
)

func TestTheClusterOfAStackFile(t *testing.T) {
	for _, tc := range []struct{ name, file, kubeconfig, context, refused string }{
		{"none is named", "config: {}", "", "", ""},
		{"no configuration", "encryptionsalt: x", "", "", ""},
		{"a context", "config: {kubernetes:context: prod}", "", "prod", ""},
		{"both", "config: {kubernetes:context: prod, kubernetes:kubeconfig: /etc/kube}", "/etc/kube", "prod", ""},
		{"an encrypted kubeconfig", "config: {kubernetes:kubeconfig: {secure: v1:x}}", "", "", "kubernetes:kubeconfig: is encrypted and cannot be read from the file, and so it is not known which cluster Pulumi uses"},
		{"an encrypted context", "config: {kubernetes:context: {secure: v1:x}}", "", "", "kubernetes:context: is encrypted"},
		{"a cluster", "config: {kubernetes:cluster: prod}", "", "", "kubernetes:cluster: is not supported here"},
		{"no YAML", "config: [", "", "", "read the stack file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			kubeconfig, kubeContext, err := platform.ClusterOf([]byte(tc.file))
			if tc.refused != "" {
				require.ErrorContains(t, err, tc.refused)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.kubeconfig, kubeconfig)
			require.Equal(t, tc.context, kubeContext)
		})
	}
}
