package gitops

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

const prometheusConfig = `
global: {scrape_interval: 500ms, scrape_timeout: 400ms}
scrape_configs: [{job_name: test, static_configs: [{targets: [%q]}]}]
`

// StartPrometheus starts a Prometheus that scrapes an address, and returns its URL once it serves. It ends with the test.
func StartPrometheus(tb testing.TB, target string) string {
	tb.Helper()
	dir := tb.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, fmt.Appendf(nil, prometheusConfig, target), 0o600); err != nil {
		tb.Fatalf("%v", err)
	}
	url := local(freePorts(tb, 1)[0])
	p := start(tb, dir, "prometheus", nil, "prometheus", "--config.file="+config,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+url, "--log.level=warn")
	p.await(tb, answers("http://"+url+"/-/ready"))
	return "http://" + url
}
