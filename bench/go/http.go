// HTTP.

package main

import (
	"encoding/json"
	"net/http"
)

const greeting = "Hello, World!"

// Serves on a port of the loopback address, with what net/http does by itself.
func serveHTTP(handler http.HandlerFunc) {
	listener := listen()
	go func() {
		fail(http.Serve(listener, handler).Error())
	}()
	answer(listener)
}

func respondHello(response http.ResponseWriter, request *http.Request) {
	response.Header().Set("Content-Type", "text/plain")
	response.Write([]byte(greeting))
}

func respondJSON(response http.ResponseWriter, request *http.Request) {
	body, err := json.Marshal(struct {
		Message string `json:"message"`
	}{greeting})
	if err != nil {
		fail(err.Error())
	}
	response.Header().Set("Content-Type", "application/json")
	response.Write(body)
}
