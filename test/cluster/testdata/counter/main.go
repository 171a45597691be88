// Command counter answers each request with its host name and how often it was started, which it
// keeps in a file. `counter get URL` prints what a URL answers within a second, and fails when nothing
// does.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "get" {
		get(os.Args[2])
		return
	}
	const file = "/data/starts"
	starts := 0
	if b, err := os.ReadFile(file); err == nil {
		if _, err := fmt.Sscan(string(b), &starts); err != nil {
			log.Fatal(err)
		}
	}
	starts++
	if err := os.WriteFile(file, []byte(fmt.Sprint(starts)), 0o644); err != nil {
		log.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "%s %d\n", host, starts)
	})
	go func() { log.Fatal(http.ListenAndServe(":8080", nil)) }()
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	<-end
}

func get(url string) {
	client := http.Client{Timeout: time.Second}
	resp, err := client.Get(url)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(os.Stdout, resp.Body); err != nil {
		log.Fatal(err)
	}
}
