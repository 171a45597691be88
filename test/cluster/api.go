package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Each manifest's path is that of its object in the API.
//
//go:embed manifests
var manifestFiles embed.FS

const apiServer = "https://" + controlPlaneIP + ":" + apiPort

// api returns a client of the API server with all rights.
func (c *Cluster) api() (*http.Client, error) {
	c.apiOnce.Do(func() {
		cert, err := tls.LoadX509KeyPair(filepath.Join(c.layout.pki(), "admin.crt"), filepath.Join(c.layout.pki(), "admin.key"))
		if err != nil {
			c.apiErr = err
			return
		}
		ca, err := os.ReadFile(filepath.Join(c.layout.pki(), "ca.crt"))
		if err != nil {
			c.apiErr = err
			return
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(ca)
		c.apiHTTP = &http.Client{Transport: &http.Transport{
			DialContext:     c.DialContext,
			TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, MinVersion: tls.VersionTLS13},
			// A connection to an API server that was killed must not outlive it.
			DisableKeepAlives: true,
		}}
	})
	return c.apiHTTP, c.apiErr
}

// call makes one request of at most ten seconds and decodes the answer into out unless that is nil.
func (c *Cluster) call(ctx context.Context, method, path string, body []byte, out any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client, err := c.api()
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, apiServer+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/apply-patch+yaml")
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(answer))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}

// applyManifests puts CoreDNS and the default storage class in place by server-side apply.
func (c *Cluster) applyManifests(ctx context.Context) error {
	return fs.WalkDir(manifestFiles, "manifests", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := manifestFiles.ReadFile(file)
		if err != nil {
			return err
		}
		path := strings.TrimSuffix(strings.TrimPrefix(file, "manifests"), ".yaml")
		return c.call(ctx, http.MethodPatch, path+"?fieldManager=local-cluster&force=true", body, nil)
	})
}

// nodeList is the part of the API's answer that readiness needs.
type nodeList struct {
	Items []struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Status struct {
			Conditions []struct {
				Type              string    `json:"type"`
				Status            string    `json:"status"`
				Message           string    `json:"message"`
				LastHeartbeatTime time.Time `json:"lastHeartbeatTime"`
			} `json:"conditions"`
		} `json:"status"`
	} `json:"items"`
}

// nodeCondition is a node's Ready condition.
type nodeCondition struct {
	ready     bool
	message   string
	heartbeat time.Time
}

func (l nodeList) ready() map[string]nodeCondition {
	nodes := map[string]nodeCondition{}
	for _, item := range l.Items {
		for _, cond := range item.Status.Conditions {
			if cond.Type == "Ready" {
				nodes[item.Metadata.Name] = nodeCondition{cond.Status == "True", cond.Message, cond.LastHeartbeatTime}
			}
		}
	}
	return nodes
}

func (c *Cluster) readyNodes(ctx context.Context) (map[string]nodeCondition, error) {
	var list nodeList
	if err := c.call(ctx, http.MethodGet, "/api/v1/nodes", nil, &list); err != nil {
		return nil, err
	}
	return list.ready(), nil
}

// checkHealth asks a component that runs whether it is healthy, in at most two seconds.
func (c *Cluster) checkHealth(ctx context.Context, machine string, comp component) error {
	if comp.name == "kube-apiserver" {
		return c.call(ctx, http.MethodGet, "/readyz", nil, nil)
	}
	if comp.health == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, comp.health, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		// The components make certificates of their own for their health; the namespace is ours.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return c.dialIP(ctx, machine, network, address)
		},
	}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}
