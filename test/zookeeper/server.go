package zookeeper

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/test/subprocess"
)

// jars are what Debian's zookeeper.jar needs and its manifest leaves out, beside the jar itself.
const jars = "zookeeper slf4j-log4j12 log4j-1.2 servlet-api netty-all netty-codec netty-resolver netty-transport-native-unix-common"

const logging = `log4j.rootLogger=WARN, CONSOLE
log4j.appender.CONSOLE=org.apache.log4j.ConsoleAppender
log4j.appender.CONSOLE.layout=org.apache.log4j.PatternLayout
log4j.appender.CONSOLE.layout.ConversionPattern=%d{ISO8601} %-5p [%t:%C{1}@%L] - %m%n
`

// Server is one ZooKeeper process, and the data it leaves for the next.
type Server struct {
	id      int
	dir     string
	address string
	peers   string
	extra   string
	props   []string
	process *exec.Cmd
	exited  chan struct{}
}

// Address is where clients connect: "127.0.0.1:port".
func (s *Server) Address() string { return s.address }

func (s *Server) configure() error {
	if err := os.MkdirAll(filepath.Join(s.dir, "data"), 0o755); err != nil {
		return err
	}
	host, port, _ := strings.Cut(s.address, ":")
	config := fmt.Sprintf(`dataDir=%s/data
clientPort=%s
clientPortAddress=%s
tickTime=200
initLimit=50
syncLimit=25
maxClientCnxns=0
4lw.commands.whitelist=*
admin.enableServer=false
%s%s`, s.dir, port, host, s.peers, s.extra)
	files := map[string]string{"zoo.cfg": config, "log4j.properties": logging}
	if s.peers != "" {
		files["data/myid"] = fmt.Sprintf("%d\n", s.id)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) launch() error {
	path := []string{s.dir}
	for jar := range strings.FieldsSeq(jars) {
		path = append(path, "/usr/share/java/"+jar+".jar")
	}
	args := []string{
		"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-cp", strings.Join(path, ":"),
		"-Dzookeeper.skipACL=no", "-Dzookeeper.fsync.warningthresholdms=5000", "-Dzookeeper.extendedTypesEnabled=true",
	}
	args = append(args, s.props...)
	args = append(args, "org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(s.dir, "zoo.cfg"))
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	process := exec.Command("java", args...)
	process.Stdout, process.Stderr = log, log
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := subprocess.Start(process); err != nil {
		return fmt.Errorf("start java (tools/debian-packages.sh zookeeper installs it): %w", err)
	}
	exited := make(chan struct{})
	go func() {
		_ = process.Wait() // it is killed, always; its log says what went wrong before that
		close(exited)
	}()
	s.process, s.exited = process, exited
	return nil
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "server.log") }

// wait returns once the server serves. A server of an ensemble answers "ruok" long before that, so it is asked for
// its mode.
func (s *Server) wait(timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for time.Now().Before(deadline) {
		if s.Mode() != "" {
			return nil
		}
		select {
		case <-s.exited:
			return fmt.Errorf("ZooKeeper server %d ended: %s", s.id, tail(s.logFile()))
		default:
		}
		pause()
	}
	return fmt.Errorf("ZooKeeper server %d at %s does not serve after %s: %s", s.id, s.address, timeout, tail(s.logFile()))
}

// Mode is "leader", "follower" or "standalone", or empty for a server that does not serve.
func (s *Server) Mode() string {
	answer, err := ask(s.address, "srvr")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(answer) {
		if mode, found := strings.CutPrefix(line, "Mode: "); found {
			return strings.TrimSpace(mode)
		}
	}
	return ""
}

// Sessions is the number of sessions that the server keeps: those of clients that went away without closing them are
// among them until they expire.
func (s *Server) Sessions() int {
	answer, err := ask(s.address, "dump")
	if err != nil {
		return 0
	}
	count := 0
	for line := range strings.Lines(answer) {
		if text := strings.TrimSpace(line); line != text && strings.HasPrefix(text, "0x") {
			count++
		}
	}
	return count
}

// Kill ends the server without warning, and returns when it is gone. It does nothing to one that is.
func (s *Server) Kill() { s.stop() }

// Restart starts a server that was killed, with the data that it had, and waits until it serves.
func (s *Server) Restart(tb TB) {
	tb.Helper()
	s.Relaunch(tb)
	if err := s.wait(startTimeout); err != nil {
		tb.Fatalf("restart: %v", err)
	}
}

// Relaunch starts a server that was killed and does not wait: one of three cannot serve before another is there.
func (s *Server) Relaunch(tb TB) {
	tb.Helper()
	if err := s.launch(); err != nil {
		tb.Fatalf("restart ZooKeeper server %d: %v", s.id, err)
	}
}

// Wipe removes the data of a server that was killed.
func (s *Server) Wipe(tb TB) {
	tb.Helper()
	if err := os.RemoveAll(filepath.Join(s.dir, "data")); err != nil {
		tb.Fatalf("wipe ZooKeeper server %d: %v", s.id, err)
	}
	if err := s.configure(); err != nil {
		tb.Fatalf("wipe ZooKeeper server %d: %v", s.id, err)
	}
}

// Pause stops the process from running, with its connections open; Resume lets it go on.
func (s *Server) Pause(tb TB) { s.signal(tb, syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *Server) Resume(tb TB) { s.signal(tb, syscall.SIGCONT) }

func (s *Server) signal(tb TB, signal syscall.Signal) {
	tb.Helper()
	if err := s.process.Process.Signal(signal); err != nil {
		tb.Fatalf("signal ZooKeeper server %d: %v", s.id, err)
	}
}

func (s *Server) stop() {
	if s.process == nil {
		return
	}
	_ = s.process.Process.Kill() // it fails only for a process that has ended
	<-s.exited
	s.process = nil
}
