package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/operator/lease/leasetls"
)

// etcdFiles are the files of EtcdTLS, without a certificate that is not there.
func (o *Options) etcdFiles() leasetls.Files {
	files := o.EtcdTLS
	if absent(files.Cert) && absent(files.Key) {
		files.Cert, files.Key = "", ""
	}
	return files
}

func absent(file string) bool {
	_, err := os.Stat(file)
	return errors.Is(err, fs.ErrNotExist)
}

// dialEtcd connects to etcd. All files are read anew when they are used: those of TLS for each connection, user and password
// for each login, of which there is one whenever etcd does not know the token any more.
func dialEtcd(opts *Options) (*clientv3.Client, error) {
	config := clientv3.Config{
		Endpoints: opts.EtcdEndpoints, DialTimeout: 5 * time.Second,
		DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: 2 * time.Second, Logger: zap.NewNop(),
	}
	if files := opts.etcdFiles(); files != (leasetls.Files{}) {
		// Options come after the client's own, and so these are the credentials in effect.
		config.DialOptions = []grpc.DialOption{grpc.WithTransportCredentials(leasetls.ClientCredentials(files))}
	}
	login := login{opts: opts}
	if opts.EtcdPasswordFile != "" {
		var err error
		if config.Username, config.Password, err = login.read(); err != nil {
			return nil, err
		}
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("--etcd-endpoints: %w", err)
	}
	if opts.EtcdPasswordFile != "" {
		login.Auth = client.Auth
		client.Auth = login
	}
	return client, nil
}

// login is an etcd client's Auth that logs in with what the files hold by then.
type login struct {
	clientv3.Auth

	opts *Options
}

// Authenticate implements clientv3.Auth. The client calls it with what it was made with.
func (l login) Authenticate(ctx context.Context, _, _ string) (*clientv3.AuthenticateResponse, error) {
	user, password, err := l.read()
	if err != nil {
		return nil, err
	}
	return l.Auth.Authenticate(ctx, user, password)
}

func (l login) read() (user, password string, err error) {
	user = l.opts.EtcdUser
	if l.opts.EtcdUserFile != "" {
		if user, err = word("--etcd-user-file", l.opts.EtcdUserFile); err != nil {
			return "", "", err
		}
	}
	password, err = word("--etcd-password-file", l.opts.EtcdPasswordFile)
	return user, password, err
}

// word reads a file of one word.
func word(flag, file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	text := strings.TrimSpace(string(content))
	if text == "" {
		return "", fmt.Errorf("%s: %s is empty", flag, file)
	}
	return text, nil
}
