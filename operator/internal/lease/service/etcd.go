package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/operator/lease/leasetls"
)

// etcdWindow is how much etcd may send without waiting; journals have some MiB.
const etcdWindow = 4 << 20

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
func dialEtcd(opts *Options) (*clientv3.Client, *reach, error) {
	reach := &reach{endpoints: strings.Join(opts.EtcdEndpoints, ", ")}
	config := clientv3.Config{
		Endpoints: opts.EtcdEndpoints, DialTimeout: 5 * time.Second,
		DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: 2 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(reach.intercept),
			// Connections that broke are made again at once: gRPC's own back-off begins with a second, which is half of a short session.
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
				MinConnectTimeout: 2 * time.Second,
			}),
			// With windows of a fixed size gRPC sends no pings to find one, which cost as much as a small call does.
			grpc.WithStaticStreamWindowSize(etcdWindow), grpc.WithStaticConnWindowSize(etcdWindow),
		},
	}
	if files := opts.etcdFiles(); files != (leasetls.Files{}) {
		// Options come after the client's own, and so these are the credentials in effect.
		config.DialOptions = append(config.DialOptions, grpc.WithTransportCredentials(leasetls.ClientCredentials(files)))
	}
	login := login{opts: opts}
	if opts.EtcdPasswordFile != "" {
		var err error
		if config.Username, config.Password, err = login.read(); err != nil {
			return nil, nil, err
		}
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, nil, fmt.Errorf("--etcd-endpoints: %w", reach.explain(err))
	}
	if opts.EtcdPasswordFile != "" {
		login.Auth = client.Auth
		client.Auth = login
	}
	return client, reach, nil
}

// reach remembers why etcd cannot be reached. The client tries again until the time of a call is over, and then says only that.
type reach struct {
	endpoints string
	last      atomic.Pointer[string]
}

// intercept is a grpc.UnaryClientInterceptor that sees each try.
func (r *reach) intercept(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	message := status.Convert(err).Message()
	switch status.Code(err) {
	case codes.Unavailable:
		r.last.Store(&message)
	case codes.DeadlineExceeded:
		r.last.CompareAndSwap(nil, &message)
	default: // etcd answered, or the caller left
		if !errors.Is(ctx.Err(), context.Canceled) {
			r.last.Store(nil)
		}
	}
	return err
}

// explain adds the endpoints and what the last try said to an error.
func (r *reach) explain(err error) error {
	last := r.last.Load()
	if last == nil || strings.Contains(err.Error(), *last) {
		return fmt.Errorf("etcd at %s: %w", r.endpoints, err)
	}
	return fmt.Errorf("etcd at %s: %w (%s)", r.endpoints, err, *last)
}

// validateEndpoint refuses what no etcd client could dial.
func validateEndpoint(endpoint string) error {
	refuse := func(why string) error {
		return fmt.Errorf("--etcd-endpoints has %q: %s; http://host:port, https://host:port and host:port are allowed, divided by commas", endpoint, why)
	}
	text := endpoint
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err
		}
		return refuse(err.Error())
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return refuse("the scheme is " + u.Scheme)
	case u.Hostname() == "":
		return refuse("there is no host")
	case err != nil || port == 0:
		return refuse("there is no port of 1 to 65535")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
		return refuse("there is more than a host and a port")
	}
	return nil
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
